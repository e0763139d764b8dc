import{a,b}from"./chunk-ARWDLMN4.js";import"./chunk-74N64566.js";import"./chunk-TPW2HJJ7.js";import"./chunk-UHTZOUWE.js";export{b as Deadlines,a as Predicted};
