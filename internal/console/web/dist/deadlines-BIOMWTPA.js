import{a,b}from"./chunk-4BUWCNTL.js";import"./chunk-OO7H2YNA.js";import"./chunk-UHTZOUWE.js";export{b as Deadlines,a as Predicted};
