import{a,b}from"./chunk-D73O45AO.js";import"./chunk-OO7H2YNA.js";import"./chunk-UHTZOUWE.js";export{a as AlertList,b as Alerts};
