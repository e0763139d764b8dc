import{a,b}from"./chunk-RHFV746R.js";import"./chunk-2YRJYEU2.js";import"./chunk-OB4ESXSE.js";import"./chunk-UHTZOUWE.js";export{a as AlertList,b as Alerts};
